# Images of the tuner and of the Endpoint Picker, from source, for any platform that
# Go builds for; the same source gives the same binaries to the byte.
#
#   docker buildx build --target kvtuner --platform linux/amd64,linux/arm64 -t kvtuner:TAG .
#   docker buildx build --target epp     --platform linux/amd64,linux/arm64 -t kvtuner-epp:TAG .
#
# SOURCE_DATE_EPOCH=$(git log -1 --format=%ct) with --output rewrite-timestamp=true
# makes the images themselves reproducible.
ARG GO_IMAGE=golang:1.26

FROM --platform=$BUILDPLATFORM ${GO_IMAGE} AS build
ARG TARGETOS TARGETARCH
ARG GOPROXY
ENV CGO_ENABLED=0 GOOS=${TARGETOS} GOARCH=${TARGETARCH} GOFLAGS="-trimpath -buildvcs=false"
WORKDIR /src
COPY go.mod go.sum ./
COPY plugin/gie/go.mod plugin/gie/go.sum plugin/gie/
RUN go mod download
COPY . .
# What a static binary needs of a system: certificate authorities, and folders that
# the user of the image may write to if they are no volumes.
RUN mkdir -p /root-of-image/etc/ssl/certs /root-of-image/var/lib/kvtuner \
 && cp /etc/ssl/certs/ca-certificates.crt /root-of-image/etc/ssl/certs/ \
 && chown -R 65532:65532 /root-of-image/var/lib/kvtuner

FROM build AS build-kvtuner
RUN go build -ldflags "-s -w -buildid=" -o /out/kvtuner ./cmd/kvtuner

FROM build AS build-epp
RUN cd plugin/gie && go build -ldflags "-s -w -buildid=" -o /out/epp ./cmd/epp

FROM scratch AS epp
COPY --from=build /root-of-image/etc /etc
COPY --from=build-epp /out/epp /epp
USER 65532:65532
ENTRYPOINT ["/epp"]

FROM scratch AS kvtuner
COPY --from=build /root-of-image /
COPY --from=build-kvtuner /out/kvtuner /kvtuner
USER 65532:65532
WORKDIR /var/lib/kvtuner
ENTRYPOINT ["/kvtuner"]
CMD ["run", "--config", "/etc/kvtuner/kvtuner.yaml"]
