# A static program on an empty base, as nobody.
FROM rust:1.95-alpine AS build
RUN apk add --no-cache build-base cmake perl
WORKDIR /src
COPY . .
RUN cargo build --release --locked --bin lynqgate

FROM scratch
COPY --from=build /src/target/release/lynqgate /lynqgate
USER 65532:65532
ENTRYPOINT ["/lynqgate"]
