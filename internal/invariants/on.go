//go:build invariants

package invariants

// Enabled reports whether this build checks.
const Enabled = true
