# A static program, run as nobody, on a base that has nothing else to run.
FROM rust:1.95-bookworm AS build
RUN apt-get update && apt-get install -y --no-install-recommends musl-tools && rm -rf /var/lib/apt/lists/*
RUN rustup target add "$(uname -m)-unknown-linux-musl"
WORKDIR /src
COPY . .
RUN cargo build --release --locked --target "$(uname -m)-unknown-linux-musl" --bin lynqgate \
    && mkdir /out \
    && mv "target/$(uname -m)-unknown-linux-musl/release/lynqgate" /out/lynqgate \
    && ln -s lynqgate /out/manager

FROM gcr.io/distroless/static-debian12:nonroot
# As `/manager`, Lynq's program, it takes Lynq's arguments.
COPY --from=build /out/ /
USER 65532:65532
ENTRYPOINT ["/lynqgate"]
