#!/bin/busybox sh
# init.sh is the first process of the guest: it loads the modules, mounts the files of the machine around it, makes an RDMA device, and runs the
# tests.
/bin/busybox --install -s /bin
export PATH=/bin
mkdir -p /proc /sys /root
mount -t proc none /proc
mount -t sysfs none /sys
for module in $(cat /modules); do
	modprobe $module 2>/dev/null || grep -q "^$module " /proc/modules || [ -d /sys/module/$module ] || echo "init: no module $module"
done
mount -t 9p -o trans=virtio,version=9p2000.L,ro,cache=loose,msize=262144 root /root || poweroff -f
for dir in /tmp /run /dev/shm; do
	[ $dir = /dev/shm ] && mount -t devtmpfs none /root/dev && mkdir -p /root/dev/shm
	mount -t tmpfs none /root$dir
done
mount -t proc none /root/proc
mount -t sysfs none /root/sys
work=$(sed 's/.*work=\([^ ]*\).*/\1/' /proc/cmdline)
mkdir -p /root/run/work
mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144 work /root/run/work || poweroff -f

touch /root/run/work/ready

# The device: all its packets stay inside of the guest.
ip link set lo up
ip link add rdma0 type dummy 2>/dev/null || ip link set dummy0 name rdma0
ip addr add 10.9.0.1/24 dev rdma0
ip link set rdma0 up
sleep 1
cat >/root/run/inside <<'END'
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp TMPDIR=/tmp
ulimit -l unlimited
rdma link add rxe0 type rxe netdev rdma0 && rdma link || exit 1
cd /run/work && sh ./tests
END
chroot /root /bin/sh /run/inside
echo $? >/root/run/work/status
sync
poweroff -f
