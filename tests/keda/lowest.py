"""Import the stubs and make one call with them. ``scripts/lowest.sh`` runs it in a bare venv."""

from __future__ import annotations

import asyncio

import google.protobuf
import grpc.aio

from scaler.keda._pb.externalscaler_pb2 import (
    GetMetricsRequest,
    GetMetricsResponse,
    MetricValue,
)
from scaler.keda._pb.externalscaler_pb2_grpc import (
    ExternalScalerServicer,
    ExternalScalerStub,
    add_ExternalScalerServicer_to_server,
)


class _Echo(ExternalScalerServicer):
    async def GetMetrics(  # noqa: N802 - the contract's name
        self, request: GetMetricsRequest, context: object
    ) -> GetMetricsResponse:
        assert context is not None
        value = MetricValue(metricName=request.metricName, metricValue=3, metricValueFloat=3)
        return GetMetricsResponse(metricValues=[value])


async def _main() -> None:
    server = grpc.aio.server()
    add_ExternalScalerServicer_to_server(_Echo(), server)  # type: ignore[abstract]  # one is enough
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        request = GetMetricsRequest(metricName="vllm-desired-replicas")
        answer = await ExternalScalerStub(channel).GetMetrics(request, timeout=5)
    await server.stop(None)
    assert [value.metricValueFloat for value in answer.metricValues] == [3.0]
    print(f"grpcio {grpc.__version__}, protobuf {google.protobuf.__version__}: stubs work")  # noqa: T201


if __name__ == "__main__":
    asyncio.run(_main())
