#!/usr/bin/env bash
# Everything that takes a GPU, in one measuring run: probes, tests, gates, speeds, X-rays, quality,
# sanitizers.
#
#   bash tools/gpu_checks.sh BIN OUT [STEP...]
#
# BIN holds what was built elsewhere for a machine without cargo: `monolith`, and `t`, the engine's
# CUDA test. OUT receives results/, dumps and logs. Steps, all of them where none is named: probes
# tests tiny tiny-fp8 standin standin-fp8 xray quality sanitizer. Each command is bounded; a failure
# is told and does not stop the others, and the exit code counts them. WORK names a folder that is
# kept, for a run in several parts [a temporary one].
set -u
bin=$1 out=$2
shift 2
steps=${*:-probes tests tiny tiny-fp8 standin standin-fp8 xray quality sanitizer}
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

# measured MODEL NAME FORMAT: ids, reference, gate, bench. The reference of other formats than bf16
# runs the values that the weights stand for.
measured() {
  local model=$1 name=$2 format=$3 reference=$1
  step 30 "$name-ids" "$bin/monolith" ids -m "$model" -o "$work/$name.json" || return
  if [ "$format" != bf16 ]; then
    reference=$work/$name-values
    step 90 "$name-unpack" "$bin/monolith" unpack -m "$model" --format "$format" -o "$reference" || return
  fi
  step 150 "$name-reference" python3 tools/reference.py --model "$reference" \
    --ids "$work/$name.json" --out "$work/$name-reference" || return
  step 150 "$name-gate" "$bin/monolith" gate -m "$model" --format "$format" --engine cuda \
    --reference "$work/$name-reference" --results "$out/results" || { tail -n 20 "$out/$name-gate.log"; return; }
  tail -n 4 "$out/$name-gate.log" | cut -c1-300
  step 90 "$name-bench" "$bin/monolith" bench -m "$model" --format "$format" --engine cuda \
    --ids "$work/$name.json" --results "$out/results" --bandwidth-gb-s "$(bandwidth)" \
    --bandwidth-source "monolith doctor --probe in the same run, 1200 MB by loads of 16 bytes" -o md \
    && cat "$out/$name-bench.log"
}

# xray MODEL NAME FORMAT: steps early and late in a text, and what recording costs.
xray() {
  step 60 "xray-$2" "$bin/monolith" xray record -m "$1" --format "$3" --engine cuda \
    --at 16,512,2048 -r 9 -o "$out/$2" && grep -E 'slower|token .* us|critical|hand-off' "$out/xray-$2.log" | head -n 24
}

for name in $steps; do
  case $name in
    probes)
      step 60 probes "$bin/monolith" doctor --probe --out "$out/probes.json"
      grep -E 'bandwidth|hand-off|timer' "$out/probes.log" | cut -c1-140
      ;;
    tests) step 120 tests "$bin/t" --test-threads=1 --nocapture; grep -E 'planted|test result' "$out/tests.log" ;;
    tiny) measured data/tiny tiny bf16 ;;
    tiny-fp8) measured data/tiny tiny-fp8 fp8 ;;
    standin) standin && measured "$work/standin" standin bf16 ;;
    standin-fp8) standin && measured "$work/standin" standin-fp8 fp8 ;;
    xray) standin && xray "$work/standin" bf16 bf16 && xray "$work/standin" fp8 fp8 ;;
    quality)
      step 60 quality-tiny "$bin/monolith" quality -m data/tiny --candidate-format fp8 --engine cuda \
        --results "$out/results"; tail -n 12 "$out/quality-tiny.log"
      standin && step 180 quality-standin "$bin/monolith" quality -m "$work/standin" \
        --candidate-format fp8 --engine cuda --text data/tiny/heldout.txt --limit-tokens 12288 \
        --results "$out/results"; \
        tail -n 12 "$out/quality-standin.log"
      ;;
    sanitizer)
      step 90 sanitizer-memcheck compute-sanitizer --tool memcheck --error-exitcode 9 \
        "$bin/t" --test-threads=1 a_few_steps_for_sanitizers
      # Its errors are judged by what they are of: see the script.
      export MONOLITH_CACHE=$work/racecheck
      timeout 120 compute-sanitizer --tool racecheck "$bin/t" --test-threads=1 \
        a_few_steps_for_sanitizers > "$out/sanitizer-racecheck.log" 2>&1
      export MONOLITH_CACHE=$work/cache
      step 30 sanitizer-verdict python3 tools/racecheck_verdict.py "$out/sanitizer-racecheck.log" \
        "$work"/racecheck/kernels/*.cubin
      tail -n 4 "$out/sanitizer-verdict.log"
      ;;
    *) echo "no such step: $name"; failures=$((failures + 1)) ;;
  esac
done
[ -n "${WORK:-}" ] || rm -rf "$work"
echo "gpu checks: $failures failed"
exit $((failures > 0))
