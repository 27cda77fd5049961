"""The gRPC side: KEDA's external scaler contract, translated to and from the store.

``service.py`` answers from the store and holds no policy; ``server.py`` listens; ``tls.py`` reads
certificates again when they change. Only this package knows the generated stubs in ``_pb``.
"""
