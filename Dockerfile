# SPDX-License-Identifier: MIT
# Two stages: build with the compiler, run with the libraries alone. The demo model is inside; mount a
# model directory and pass its path to serve another one. --build-arg VARIANT=small leaves out OpenBLAS
# (matrices are then always multiplied by Hearth's own kernels), `hearth pull`, `hearth chat --url` and line
# editing in `hearth chat`: 5 MB above the base instead of 68. --build-arg COMMIT=$(git rev-parse HEAD) is what --version names.
#
#   docker build -t hearth .
#   docker run --rm --read-only -p 8080:8080 -v /path/to/model:/model:ro -e HEARTH_MODEL=/model \
#       -e HEARTH_API_KEY=secret hearth
#
# or, with a volume that keeps what is fetched from the Hugging Face hub:
#
#   docker run --rm --read-only -p 8080:8080 -v hearth-models:/models -e HEARTH_API_KEY=secret hearth \
#       -hf HuggingFaceTB/SmolLM2-135M-Instruct
ARG VARIANT=full

FROM docker.io/library/debian:bookworm-slim AS build
ARG VARIANT
ARG COMMIT=
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends \
        gcc libc6-dev meson ninja-build pkg-config libmicrohttpd-dev libjansson-dev libpcre2-dev libutf8proc-dev \
        nettle-dev \
        $([ "$VARIANT" = small ] || echo libopenblas-pthread-dev libcurl4-gnutls-dev libedit-dev) \
    && apt-get clean && rm -rf /var/lib/apt/lists/*
COPY . /src
WORKDIR /src
RUN parts=$([ "$VARIANT" = small ] && echo disabled || echo enabled) \
    && meson setup build-image --buildtype=release --prefix=/usr -Dtests=disabled -Dcommit="$COMMIT" \
        -Dblas=$parts -Dhub=$parts -Dchat=$parts \
    && ninja -C build-image \
    && meson install -C build-image --no-rebuild --strip --destdir /out

FROM docker.io/library/debian:bookworm-slim
LABEL org.opencontainers.image.title="hearth" \
      org.opencontainers.image.description="Llama-family models on CPUs through the OpenAI-style HTTP API" \
      org.opencontainers.image.licenses="MIT"
ARG VARIANT
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends \
        libmicrohttpd12 libjansson4 libpcre2-8-0 libutf8proc2 libnettle8 \
        $([ "$VARIANT" = small ] || echo libopenblas0-pthread libcurl3-gnutls ca-certificates libedit2) \
    && apt-get clean && rm -rf /var/lib/apt/lists/* \
    && install -d -o 10001 -g 10001 /models
COPY --from=build /out/ /
ENV HF_HUB_CACHE=/models \
    HEARTH_HOST=0.0.0.0 \
    HEARTH_PORT=8080 \
    HEARTH_ALLOW_PUBLIC_WITHOUT_KEY=true \
    HEARTH_DRAIN_DELAY_MS=3000 \
    OPENBLAS_NUM_THREADS=1 \
    MALLOC_ARENA_MAX=2
USER 10001:10001
VOLUME /models
EXPOSE 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s \
    CMD ["/usr/bin/hearth", "healthcheck", "/healthz"]
ENTRYPOINT ["/usr/bin/hearth"]
CMD ["serve"]
