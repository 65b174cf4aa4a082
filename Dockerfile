# One image for each of the three binaries:
#
#   docker build --build-arg BINARY=webhook -t webhook .
#
# The tags are not pinned by digest here: docs/start/first-deployment.md has the command that pins them.
FROM --platform=$BUILDPLATFORM golang:1.26-bookworm AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download && go mod verify
COPY catalog/ catalog/
COPY cmd/ cmd/
COPY docs/runbooks/ docs/runbooks/
COPY emulator/ emulator/
COPY internal/ internal/
# webhook, worker or billhook.
ARG BINARY=worker
ARG TARGETOS
ARG TARGETARCH
RUN CGO_ENABLED=0 GOOS=${TARGETOS} GOARCH=${TARGETARCH} go build -trimpath -ldflags="-s -w" -o /out/billhook ./cmd/${BINARY}

FROM gcr.io/distroless/static-debian12:nonroot
COPY --from=build /out/billhook /billhook
# The user nonroot, as a number: a runtime can check that it is not root.
USER 65532:65532
ENTRYPOINT ["/billhook"]
