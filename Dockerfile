# The agent, its worker, the command line and the trainers' library, on Debian 12.
#   docker build -t tutti:0.1.0 .
# Trainers are in other images, with python3-tutti or the wheel; they need the socket's folder,
# /run/tutti, and nothing else. tests/install/image_test follows these steps without docker.
FROM debian:12-slim AS build
RUN apt-get update && apt-get install --yes --no-install-recommends \
      build-essential cmake ninja-build pkg-config libgrpc++-dev libprotobuf-dev protobuf-compiler \
      protobuf-compiler-grpc libspdlog-dev libcli11-dev libssl-dev nlohmann-json3-dev \
      libmicrohttpd-dev prometheus-cpp-dev libxxhash-dev
COPY . /src
# Further options of cmake, as in: docker build --build-arg CMAKE_OPTIONS=-DTUTTI_CUDA=OFF
ARG CMAKE_OPTIONS=""
RUN cmake -S /src -B /src/build/image -G Ninja -DCMAKE_BUILD_TYPE=Release -DTUTTI_TESTS=OFF $CMAKE_OPTIONS
RUN cmake --build /src/build/image
RUN set -e; for component in daemon library; do \
      DESTDIR=/out cmake --install /src/build/image --strip --component $component; \
    done; rm /out/usr/local/lib/libtutti_frameworks.*

FROM debian:12-slim
# gRPC without TLS is not used.
RUN apt-get update && apt-get install --yes --no-install-recommends \
      libgrpc++1.51 libprotobuf32 libspdlog1.10 libmicrohttpd12 libprometheus-cpp-core1.0 && \
    apt-get clean && rm -rf /var/lib/apt/lists/* /var/cache/apt /var/log/* /usr/lib/*/libgrpc*unsecure*
COPY --from=build /out/ /
RUN ldconfig && install --directory --owner=65532 --group=65532 /run/tutti
# Not root: workers run as this user, too, for any trainers.
USER 65532:65532
EXPOSE 7601 7602
HEALTHCHECK --interval=10s --timeout=5s --start-period=10s CMD ["tutti", "status"]
# For other nodes: --listen with an address that they reach, and a token or TLS. Without either an
# address for all networks is refused.
CMD ["tuttid"]
