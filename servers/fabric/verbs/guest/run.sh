#!/bin/sh
# run.sh boots a virtual machine with a software RDMA device, runs the programs of a directory in it, and ends with their exit code.
#
#	guest/run.sh WORK
#
# WORK/tests is a shell script that runs in the guest, in the directory WORK. The guest is Debian's kernel with this machine's files, read-only, and
# the module rdma_rxe, which makes an RDMA device of a network interface. Nothing on this machine is changed outside of WORK.
#
# It needs packages of Debian (make verbs-packages), and about 100 MB in WORK. With /dev/kvm the guest's processors are this machine's; without it
# they are emulated, and everything takes 10 to 50 times as long: GUESTTIME is the limit in seconds.
set -eu
work=$(realpath "$1")
here=$(dirname "$(realpath "$0")")
cannot() {
	echo "verbs-guest: cannot run here: $*" >&2
	exit 1
}
[ "$(uname -sm)" = "Linux x86_64" ] || cannot "the guest is Linux on x86-64, this is $(uname -sm)"
for tool in qemu-system-x86_64 busybox cpio apt-get dpkg rdma; do
	command -v $tool >/dev/null || cannot "$tool is missing; as root, make verbs-packages installs it"
done

# The kernel, unpacked, not installed.
image=$(apt-cache depends linux-image-amd64 | sed -n 's/^ *Depends: \(linux-image-.*\)$/\1/p' | head -1)
[ -n "$image" ] || cannot "apt knows no package linux-image-amd64; apt-get update brings the lists"
version=${image#linux-image-}
kernel=$work/kernel
if [ ! -e "$kernel/$version" ]; then
	rm -rf "$kernel"
	mkdir -p "$kernel"
	(cd "$kernel" && apt-get download -qq "$image" 2>/dev/null) || cannot "apt-get cannot download $image"
	dpkg -x "$kernel"/*.deb "$kernel"
	rm "$kernel"/*.deb
	busybox depmod -b "$kernel" "$version"
	touch "$kernel/$version"
fi

# The first file system: busybox, the modules and what they need, and init.
modules="virtio_pci 9pnet_virtio 9p dummy crc32_generic crc32c_generic ib_uverbs rdma_ucm rdma_rxe"
root=$work/initrd
rm -rf "$root"
mkdir -p "$root/bin"
cp "$(command -v busybox)" "$root/bin/busybox"
cp "$here/init.sh" "$root/init"
echo "$modules" >"$root/modules"
libraries=$kernel/lib/modules/$version
needs() { # a module's file, after those that it needs
	line=$(grep "/$1.ko:" "$libraries/modules.dep" || true)
	[ -n "$line" ] || return 0 # it is part of the kernel
	for file in ${line#*:} ${line%%:*}; do
		echo "$file"
	done
}
for module in $modules; do
	for file in $(needs "$module"); do
		mkdir -p "$root/lib/modules/$version/$(dirname "$file")"
		cp "$libraries/$file" "$root/lib/modules/$version/$file"
	done
done
cp "$libraries"/modules.dep "$libraries"/modules.alias "$libraries"/modules.symbols "$root/lib/modules/$version/" 2>/dev/null || true
(cd "$root" && find . | cpio -o -H newc --quiet | gzip -1) >"$work/initrd.gz"

# memcpy of the guest's kernel, by which its RDMA device moves data, is to store whole words: without erms it uses movsq, not movsb.
boot() { # the accelerator, its options
	rm -f "$work/status" "$work/ready"
	qemu-system-x86_64 -accel $1 -cpu $2,-erms,-fsrm -smp 2 -m 3072 -display none -no-reboot -monitor none -serial stdio \
		-kernel "$kernel/boot/vmlinuz-$version" -initrd "$work/initrd.gz" -append "console=ttyS0 quiet panic=-1 work=$work" \
		-fsdev local,id=root,path=/,security_model=none,readonly=on,multidevs=remap -device virtio-9p-pci,fsdev=root,mount_tag=root \
		-fsdev local,id=work,path="$work",security_model=none -device virtio-9p-pci,fsdev=work,mount_tag=work </dev/null &
	guest=$!
	trap 'kill $guest 2>/dev/null' EXIT
	waited=0
	while [ ! -e "$work/ready" ]; do # init writes it
		kill -0 $guest 2>/dev/null && [ $waited -lt "$3" ] || { kill $guest 2>/dev/null; wait $guest 2>/dev/null; return 1; }
		sleep 1
		waited=$((waited + 1))
	done
	echo "verbs-guest: Linux $version by qemu $1, started within $waited s"
}
if [ "${GUESTACCEL:-kvm}" = tcg ]; then
	boot tcg,thread=multi max 180 || cannot "the guest does not start; what it has said is above"
elif [ ! -w /dev/kvm ]; then
	echo "verbs-guest: no /dev/kvm here"
	boot tcg,thread=multi max 180 || cannot "the guest does not start; what it has said is above"
elif ! boot kvm host,-arch-capabilities 30; then
	echo "verbs-guest: /dev/kvm is of no use here: no guest has started with it within 30 s"
	boot tcg,thread=multi max 180 || cannot "the guest does not start; what it has said is above"
fi
limit=${GUESTTIME:-1200}
while kill -0 $guest 2>/dev/null; do
	[ $limit -gt 0 ] || cannot "the tests did not end within ${GUESTTIME:-1200} s"
	sleep 1
	limit=$((limit - 1))
done
[ -e "$work/status" ] || cannot "the guest has ended before its tests did; what it has said is above"
exit "$(cat "$work/status")"
