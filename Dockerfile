# The agent, its worker, the command line, the client library and the Python package, on Debian 12.
#   docker build -t tutti:0.1.0 .
#   docker run --rm tutti:0.1.0 tutti run --per-host 2 -- python3 -c 'import tutti; print(tutti.join().rank)'
# Trainers in other containers need the socket's folder (/run/tutti) and nothing else.
FROM debian:12 AS build
RUN apt-get update && apt-get install --yes --no-install-recommends \
      build-essential cmake ninja-build pkg-config libgrpc++-dev libprotobuf-dev protobuf-compiler \
      protobuf-compiler-grpc libspdlog-dev libcli11-dev libssl-dev \
      nlohmann-json3-dev libcivetweb-dev prometheus-cpp-dev && rm -rf /var/lib/apt/lists/*
COPY . /src
RUN cmake -S /src -B /build -G Ninja -DCMAKE_BUILD_TYPE=Release -DTUTTI_TESTS=OFF \
      -DCMAKE_INSTALL_PREFIX=/usr/local && cmake --build /build && DESTDIR=/out cmake --install /build

FROM debian:12
RUN apt-get update && apt-get install --yes --no-install-recommends \
      libgrpc++1.51 libprotobuf32 libspdlog1.10 libcivetweb1 libprometheus-cpp-core1.0 python3 python3-numpy iproute2 \
      && rm -rf /var/lib/apt/lists/*
COPY --from=build /out/ /
RUN ldconfig && mkdir -p /run/tutti
ENV PYTHONPATH=/usr/local/share/tutti/python
EXPOSE 7601 9464
CMD ["tuttid", "--listen=0.0.0.0:7601"]
