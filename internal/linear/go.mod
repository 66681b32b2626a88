module flashdbm/internal/linear

go 1.26.0

require (
	flashdbm v0.0.0
	github.com/anishathalye/porcupine v1.3.1
	github.com/stretchr/testify v1.12.1
)

require (
	github.com/edsrzf/mmap-go v1.2.0 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/sys v0.49.0 // indirect
)

replace flashdbm => ../..
