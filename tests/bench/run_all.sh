#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# All measurements that RESULTS.md shows, one after the other, on a machine with nothing else to do.
#
#   tests/bench/run_all.sh [MODEL]      MODEL: a directory; default: random weights in SmolLM2-135M's shape
#
# HEARTH_BIN names the binary (build/hearth). PARTS="compare bench load start spinner gemm" chooses. About 40
# minutes on two cores. Results go to tests/bench/results/, the report to tests/bench/RESULTS.md.
set -eu
cd "$(dirname "$0")/../.."
bench=tests/bench results=tests/bench/results
export HEARTH_BIN=${HEARTH_BIN:-build/hearth}
PARTS=${PARTS:-compare bench load start spinner gemm}
port=${PORT:-18080}
mkdir -p "$results" build
model=${1:-build/compare/model}
[ -f "$model/model.safetensors" ] || $bench/make_model.py "$model"

part() { case " $PARTS " in *" $1 "*) return 0 ;; *) return 1 ;; esac; }

# serve NUMERICS: starts a server and waits until it is ready; its process id is $server.
serve() {
    "$HEARTH_BIN" serve --model "$model" --numerics "$1" --parallel 32 --threads 2 --port "$port" \
        --no-prefix-cache --queue-timeout-ms 0 --log-level error &
    server=$!
    until "$HEARTH_BIN" healthcheck "http://127.0.0.1:$port/readyz" >/dev/null 2>&1; do
        kill -0 $server
        sleep 0.1
    done
}

if part compare; then
    $bench/compare_llama.py --json $results/compare_llama.json
fi
if part bench; then
    for numerics in bf16 int8 int4; do
        for threads in 1 2; do
            "$HEARTH_BIN" bench --model "$model" --numerics $numerics --threads $threads --json \
                --prefill 128,512,2048 --decode 128 --batch 1,4,8,16,32 --context 0,512,2048 --reps 5 \
                >$results/bench-$numerics-t$threads.jsonl
            "$HEARTH_BIN" bench --model "$model" --numerics $numerics --threads $threads --json \
                --prefill 0 --decode 64 --batch 1 --context 8000 --reps 5 >>$results/bench-$numerics-t$threads.jsonl
        done
    done
fi
if part load; then
    for numerics in bf16 int8; do
        serve $numerics
        $bench/load.py --url "http://127.0.0.1:$port" --label "Hearth $numerics" --clients 1,2,4,8,16,32 \
            --total 128 --rounds 3 --json $results/load-$numerics.json || true
        kill $server
        wait $server || true
    done
fi
if part start; then
    for numerics in bf16 int8 int4; do
        $bench/start.py -n 7 --json $results/start-$numerics.json -- "$HEARTH_BIN" serve --model "$model" \
            --numerics $numerics --parallel 4 --threads 2 --port "$port" --log-level error
    done
fi
if part spinner; then
    $bench/spinner.py --model "$model" --json $results/spinner.json || echo "a busy neighbour costs too much"
fi
if part gemm; then
    build/tests/bench/bench_gemm >$results/gemm.jsonl
fi
$bench/report.py
