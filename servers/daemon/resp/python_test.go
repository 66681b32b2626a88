//go:build clients

package resp

import (
	"net"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPython runs programs that use redis-py, and Flask-Session over it (Debian: python3-redis, python3-flask-session). Each
// fails at the first answer that is not Redis's.
func TestPython(t *testing.T) {
	for script, module := range map[string]string{"client.py": "redis.asyncio", "web.py": "flask_session"} {
		t.Run(script, func(t *testing.T) {
			if err := exec.Command("python3", "-c", "import redis, "+module).Run(); err != nil {
				t.Skipf("python3 without %s: %v", module, err)
			}
			_, addr := serve(t, newStore(t), Config{})
			_, port, err := net.SplitHostPort(addr)
			require.NoError(t, err)
			out, err := exec.Command("python3", "testdata/"+script, port).CombinedOutput()
			require.NoError(t, err, "%s", out)
		})
	}
}
