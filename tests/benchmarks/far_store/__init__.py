"""Benchmarks over an S3 server that answers as from far away; `latency_proxy.go` is what makes it far."""
