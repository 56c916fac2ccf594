"""The only place that talks to Kubernetes."""
