"""Generated from ``proto/externalscaler.proto`` by ``scripts/proto.sh``; only keda may import it."""
