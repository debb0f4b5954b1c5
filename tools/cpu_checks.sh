#!/usr/bin/env bash
# What the CPU engine does at every SIMD level of this processor, in one measuring run: gates and speeds
# of the tiny model in bf16 and FP8, the microbenchmark, and quality with our own bf16 engine against
# f32 as the control. The machine should be idle.
#
#   bash tools/cpu_checks.sh BIN OUT [CONTROL_TINY [CONTROL_STANDIN]]
#
# BIN holds `monolith` and, for the microbenchmark, `cpu-bench` (cargo bench -p monolith-engine --bench
# cpu --no-run). CONTROL_*: what tools/control.py wrote of the model; without one its quality is not
# measured. python3 has torch and transformers, which the FP8 gate's reference needs.
set -u
bin=$1 out=$2 control_tiny=${3:-} control_standin=${4:-}
work=${WORK:-$(mktemp -d)}
export MONOLITH_CACHE=$work/cache PYTHONUNBUFFERED=1
mkdir -p "$out" "$work"
. "$(dirname "$0")/steps.sh"

# The SIMD levels that this processor runs.
levels() {
  local level
  for level in avx512 avx2 neon scalar; do
    "$bin/monolith" run -m data/tiny --engine cpu --simd "$level" -n 1 -p a > /dev/null 2>&1 \
      && echo "$level"
  done
}

# reference FORMAT: the folder of transformers' reference; the values of the codes for FP8.
reference() {
  [ "$1" = bf16 ] && echo data/golden/tiny-reference && return
  step 60 "tiny-$1-ids" "$bin/monolith" ids -m data/tiny -o "$work/tiny.json" >&2
  step 90 "tiny-$1-unpack" "$bin/monolith" unpack -m data/tiny --format "$1" -o "$work/$1-values" >&2
  step 240 "tiny-$1-reference" python3 tools/reference.py --model "$work/$1-values" \
    --ids "$work/tiny.json" --out "$work/tiny-$1-reference" >&2
  echo "$work/tiny-$1-reference"
}

# quality MODEL FORMAT CONTROL OPTION...: every bf16 and candidate token, and the control.
quality() {
  local model=$1 format=$2 control=$3
  shift 3
  quality_step 420 "quality-$(basename "$model")-$format" "$bin/monolith" quality -m "$model" \
    --candidate-format "$format" --engine cpu --control "$control" --results "$out/results" \
    --text data/tiny/heldout.txt "$@"
}

levels=$(levels)
echo "SIMD levels: "$levels
for format in bf16 fp8; do
  folder=$(reference "$format")
  for level in $levels; do
    step 120 "gate-$format-$level" "$bin/monolith" gate -m data/tiny --format "$format" --engine cpu \
      --simd "$level" --reference "$folder" --results "$out/results" || continue
    step 120 "bench-$format-$level" "$bin/monolith" bench -m data/tiny --format "$format" \
      --engine cpu --simd "$level" --require-gate --results "$out/results" -o md \
      && cat "$out/bench-$format-$level.log"
  done
done
[ -x "$bin/cpu-bench" ] && step 300 cpu-bench "$bin/cpu-bench" --bench && cat "$out/cpu-bench.log"
if [ -n "$control_tiny" ]; then
  for format in fp8 fp8-head-bf16; do quality data/tiny "$format" "$control_tiny"; done
fi
if [ -n "$control_standin" ]; then
  step 60 standin-synth "$bin/monolith" synth --deltas data/standin -o "$work/standin"
  quality "$work/standin" fp8 "$control_standin" --limit-tokens 1024 --kl-positions 500
fi
echo "$failures failed"
[ "$failures" -eq 0 ]
