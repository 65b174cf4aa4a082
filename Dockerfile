# One image for each of the three binaries:
#
#   docker build --build-arg BINARY=webhook -t webhook .
#
# Both images are pinned by digest; Dependabot proposes newer ones.
FROM --platform=$BUILDPLATFORM golang:1.26-bookworm@sha256:a688600ca24f8a4d3ca77f95b0dd40704a9fc787c826660eb7ba0b641b8b175d AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download && go mod verify
COPY catalog/ catalog/
COPY cmd/ cmd/
COPY docs/reference/ docs/reference/
COPY docs/runbooks/ docs/runbooks/
COPY emulator/ emulator/
COPY internal/ internal/
# Terraform takes the catalog as it is.
RUN go run ./cmd/billhook admin catalog check
# webhook, worker or billhook.
ARG BINARY=worker
ARG TARGETOS
ARG TARGETARCH
RUN CGO_ENABLED=0 GOOS=${TARGETOS} GOARCH=${TARGETARCH} go build -trimpath -ldflags="-s -w" -o /out/billhook ./cmd/${BINARY}

FROM gcr.io/distroless/static-debian12:nonroot@sha256:afa5c872c891853ca7fcf1f12c3edb23f7eeef36189728842dd51042ff57f7ab
COPY --from=build /out/billhook /billhook
# The user nonroot, as a number: a runtime can check that it is not root.
USER 65532:65532
ENTRYPOINT ["/billhook"]
