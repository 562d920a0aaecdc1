# Targets: podlease-sidecar, podlease-controller, podlease. For example:
#
#   docker build --target podlease-sidecar -t podlease-sidecar:dev .
#   docker buildx build --platform linux/amd64,linux/arm64 --target podlease-controller …
#
# The programs are linked statically and the images hold nothing else but certificate
# authorities: no shell, no package manager. The same source, Go version and VERSION
# give the same programs (-trimpath, no build id of the version control); add
# SOURCE_DATE_EPOCH and buildx's rewrite-timestamp=true for the same image.
ARG GO_VERSION=1.26

# The compiler runs on the machine that builds, whatever the image is for. Docker's old
# builder does not set BUILDPLATFORM.
FROM --platform=${BUILDPLATFORM:-linux} golang:${GO_VERSION} AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY cmd cmd
COPY pkg pkg
ARG VERSION=dev
# Set by BuildKit to what the image is for; without it the image is for the machine
# that builds it.
ARG TARGETARCH
ENV CGO_ENABLED=0 GOARCH=${TARGETARCH} GOFLAGS=-buildvcs=false LDFLAGS="-s -w -X main.version=${VERSION}"

FROM scratch AS base
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
# So that an exec hook can name the program alone.
ENV PATH=/
# A number: the kubelet can check runAsNonRoot without a password file.
USER 65532:65532

FROM build AS build-podlease-sidecar
RUN go build -trimpath -ldflags "$LDFLAGS" -o /out/ ./cmd/podlease-sidecar
FROM base AS podlease-sidecar
COPY --from=build-podlease-sidecar /out/podlease-sidecar /
ENTRYPOINT ["/podlease-sidecar"]

FROM build AS build-podlease-controller
RUN go build -trimpath -ldflags "$LDFLAGS" -o /out/ ./cmd/podlease-controller
FROM base AS podlease-controller
COPY --from=build-podlease-controller /out/podlease-controller /
ENTRYPOINT ["/podlease-controller"]

FROM build AS build-podlease
RUN go build -trimpath -ldflags "$LDFLAGS" -o /out/ ./cmd/podlease
FROM base AS podlease
COPY --from=build-podlease /out/podlease /
ENTRYPOINT ["/podlease"]
