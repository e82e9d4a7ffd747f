// The folder of the control plane. What it is built from stands in a file for each version of Kubernetes, which
// tests/lab/build.py names: `go build -modfile=kubernetes-1.36.mod .`
module healthd.dev/lab/controlplane

go 1.26.0
