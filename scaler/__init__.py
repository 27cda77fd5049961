"""A KEDA external scaler and Prometheus exporter for fleets of vLLM servers."""

__version__ = "0.1.0"
