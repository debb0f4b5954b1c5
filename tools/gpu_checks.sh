#!/usr/bin/env bash
# Everything that takes a GPU, in one measuring run: probes, tests, gates, speeds, X-rays, quality,
# sanitizers.
#
#   bash tools/gpu_checks.sh BIN OUT [STEP...]
#
# BIN holds what was built elsewhere for a machine without cargo: `monolith`, and `t`, the engine's
# CUDA test. OUT receives results/, dumps and logs. Steps, all of them where none is named:
# references probes tests tiny tiny-fp8 standin standin-fp8 xray quality sanitizer. Each command is
# bounded; a failure is told and does not stop the others, and the exit code counts them. WORK names
# a folder that is kept, for a run in several parts [a temporary one].
set -u
bin=$1 out=$2
shift 2
steps=${*:-references probes tests tiny tiny-fp8 standin standin-fp8 xray quality sanitizer}
work=${WORK:-$(mktemp -d)}
export MONOLITH_CACHE=$work/cache MONOLITH_NEEDS_GPU=1 RUST_BACKTRACE=0 PYTHONUNBUFFERED=1
mkdir -p "$out" "$work"
failures=0

# step SECONDS NAME COMMAND...: runs it, keeps its output, says how it ended.
step() {
  local seconds=$1 name=$2 began=$SECONDS
  shift 2
  timeout "$seconds" "$@" > "$out/$name.log" 2>&1
  local code=$?
  echo "== $name: exit $code, $((SECONDS - began)) s"
  [ $code -eq 0 ] || { failures=$((failures + 1)); tail -n 12 "$out/$name.log" | cut -c1-300; }
  return $code
}

bandwidth() {
  local found
  found=$(grep -oE '1200 MB by loads of 16 bytes, 1 block an SM +[0-9]+' "$out/probes.log" 2>/dev/null \
    | grep -oE '[0-9]+$')
  echo "${found:-4300}"
}

standin() {
  [ -d "$work/standin" ] || step 60 standin-synth "$bin/monolith" synth --deltas data/standin -o "$work/standin"
}

# reference MODEL NAME FORMAT: ids, and what transformers says, once. The reference of other formats
# than bf16 runs the values that the weights stand for.
reference() {
  local model=$1 name=$2 format=$3 values=$1
  [ -f "$work/$name-reference/reference.json" ] && return
  step 30 "$name-ids" "$bin/monolith" ids -m "$model" -o "$work/$name.json" || return
  if [ "$format" != bf16 ]; then
    values=$work/$name-values
    rm -rf "$values"
    step 90 "$name-unpack" "$bin/monolith" unpack -m "$model" --format "$format" -o "$values" || return
  fi
  step 240 "$name-reference" python3 tools/reference.py --model "$values" \
    --ids "$work/$name.json" --out "$work/$name-reference"
}

# control MODEL NAME: how far bf16 and f32 agree by themselves, once.
control() {
  local model=$1 name=$2
  [ -f "$out/control-$name.json" ] && return
  step 30 "control-$name-ids" "$bin/monolith" ids -m "$model" --prompts data/prompts/quality.jsonl \
    -o "$work/control-$name-ids.json" || return
  step 240 "control-$name" python3 tools/control.py --model "$model" \
    --ids "$work/control-$name-ids.json" --out "$out/control-$name.json"
}

# measured MODEL NAME FORMAT: reference, gate, bench.
measured() {
  local model=$1 name=$2 format=$3
  reference "$@" || return
  step 150 "$name-gate" "$bin/monolith" gate -m "$model" --format "$format" --engine cuda \
    --reference "$work/$name-reference" --results "$out/results" || { tail -n 20 "$out/$name-gate.log"; return; }
  tail -n 4 "$out/$name-gate.log" | cut -c1-300
  step 90 "$name-bench" "$bin/monolith" bench -m "$model" --format "$format" --engine cuda \
    --ids "$work/$name.json" --results "$out/results" --bandwidth-gb-s "$(bandwidth)" \
    --bandwidth-source "monolith doctor --probe in the same run, 1200 MB by loads of 16 bytes" -o md \
    && cat "$out/$name-bench.log"
}

# xray MODEL FORMAT: steps early and late in a text, what recording costs, and traces for the page.
xray() {
  step 60 "xray-$2" "$bin/monolith" xray record -m "$1" --format "$2" --engine cuda \
    --at 16,512,2048 -r 9 -o "$out/dumps" || return
  grep -E 'longer|^token .* us|true to' "$out/xray-$2.log"
  local at
  for at in 16 2048; do
    step 30 "export-$2-$at" "$bin/monolith" xray export "$out/dumps/$2-flag-$at.xray" --to page \
      -o "$out/xray-$2-flag-$at.json.gz"
  done
}

# quality MODEL NAME ARGUMENT...: FP8 against bf16; before it the control.
quality() {
  local model=$1 name=$2
  shift 2
  control "$model" "$name" || return
  cat "$out/control-$name.log"
  step 180 "quality-$name" "$bin/monolith" quality -m "$model" --candidate-format fp8 --engine cuda \
    --control "$out/control-$name.json" --results "$out/results" "$@"
  tail -n 12 "$out/quality-$name.log" | cut -c1-300
}

# All that transformers is asked, at the same time: nothing here is timed. What fails is tried again
# by the step that needs it, and counted there.
references() {
  standin || return
  reference data/tiny tiny bf16 &
  reference data/tiny tiny-fp8 fp8 &
  reference "$work/standin" standin bf16 &
  reference "$work/standin" standin-fp8 fp8 &
  control data/tiny tiny &
  control "$work/standin" standin &
  wait
}

for name in $steps; do
  case $name in
    probes)
      step 60 probes "$bin/monolith" doctor --probe --out "$out/probes.json"
      grep -E 'bandwidth|hand-off|timer' "$out/probes.log" | cut -c1-140
      ;;
    tests) step 120 tests "$bin/t" --test-threads=1 --nocapture; grep -E 'planted|test result' "$out/tests.log" ;;
    references) references ;;
    tiny) measured data/tiny tiny bf16 ;;
    tiny-fp8) measured data/tiny tiny-fp8 fp8 ;;
    standin) standin && measured "$work/standin" standin bf16 ;;
    standin-fp8) standin && measured "$work/standin" standin-fp8 fp8 ;;
    xray) standin && xray "$work/standin" bf16; xray "$work/standin" fp8 ;;
    quality)
      quality data/tiny tiny --text data/tiny/heldout.txt
      standin && quality "$work/standin" standin --text data/tiny/heldout.txt --limit-tokens 12288
      ;;
    sanitizer)
      step 150 sanitizer-memcheck compute-sanitizer --tool memcheck --error-exitcode 9 \
        "$bin/t" --test-threads=1 a_few_steps_for_sanitizers a_few_steps_of_every_build
      # Its errors are judged by what they are of: see the script.
      export MONOLITH_CACHE=$work/racecheck
      timeout 120 compute-sanitizer --tool racecheck "$bin/t" --test-threads=1 \
        a_few_steps_for_sanitizers > "$out/sanitizer-racecheck.log" 2>&1
      export MONOLITH_CACHE=$work/cache
      step 30 sanitizer-verdict python3 tools/racecheck_verdict.py "$out/sanitizer-racecheck.log" \
        "$(ls -t "$work"/racecheck/kernels/*.cubin | head -n 1)"
      tail -n 4 "$out/sanitizer-verdict.log"
      ;;
    *) echo "no such step: $name"; failures=$((failures + 1)) ;;
  esac
done
[ -n "${WORK:-}" ] || rm -rf "$work"
echo "gpu checks: $failures failed"
exit $((failures > 0))
