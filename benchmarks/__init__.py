"""Speed and memory bars, each as a ratio against a peer measured in the same run. See docs/benchmarks.md."""
