#!/usr/bin/env bash
# Everything that takes a GPU, in one measuring run: tests, probes, gates, speeds, sanitizers.
#
#   bash tools/gpu_checks.sh BIN OUT [STEP...]
#
# BIN holds what was built elsewhere for a machine without cargo: `monolith`, `monolith-probe` with
# its cubins, and `t`, the engine's CUDA test. OUT receives results/ and the logs. Steps: tests
# tiny synth sanitizer; all of them where none is named. Each is bounded; a failure is told and
# does not stop the others, and the exit code counts them.
set -u
bin=$1 out=$2
shift 2
steps=${*:-tests tiny synth sanitizer}
work=$(mktemp -d)
export MONOLITH_CACHE=$work/cache MONOLITH_NEEDS_GPU=1 RUST_BACKTRACE=0 PYTHONUNBUFFERED=1
mkdir -p "$out"
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

# measured FOLDER NAME BANDWIDTH [GATE OPTIONS...]: ids, reference, gate, bench of one model.
measured() {
  local model=$1 name=$2 bandwidth=$3
  shift 3
  step 30 "$name-ids" "$bin/monolith" ids -m "$model" -o "$work/$name.json" || return
  step 120 "$name-reference" python3 tools/reference.py --model "$model" --ids "$work/$name.json" \
    --out "$work/$name-reference" || return
  step 120 "$name-gate" "$bin/monolith" gate -m "$model" --engine cuda \
    --reference "$work/$name-reference" --results "$out/results" "$@" || tail -n 20 "$out/$name-gate.log"
  step 60 "$name-bench" "$bin/monolith" bench -m "$model" --engine cuda --ids "$work/$name.json" \
    --results "$out/results" --bandwidth-gb-s "$bandwidth" \
    --bandwidth-source "monolith-probe in the same run, 1200 MB by loads of 16 bytes" -o md \
    && cat "$out/$name-bench.log"
}

step 30 probes "$bin/monolith-probe" --cubins "$bin"
grep -v '^ *$' "$out/probes.log" | head -n 60 | cut -c1-140
bandwidth=$(grep -oE '1200 MB by loads of 16 bytes, 1 block an SM +[0-9]+' "$out/probes.log" \
  | grep -oE '[0-9]+$')

for name in $steps; do
  case $name in
    tests) step 60 tests "$bin/t" --test-threads=1 --nocapture; grep planted "$out/tests.log" ;;
    tiny) measured data/tiny tiny "${bandwidth:-4300}" ;;
    synth)
      step 60 synth "$bin/monolith" synth --shape qwen3-0.6b --seed 0 -o "$work/qwen3-0.6b-synth" \
        && measured "$work/qwen3-0.6b-synth" synth "${bandwidth:-4300}" --rule f32-settles
      ;;
    sanitizer)
      for tool in memcheck racecheck; do
        step 90 "sanitizer-$tool" compute-sanitizer --tool "$tool" --error-exitcode 9 \
          "$bin/t" --test-threads=1 a_few_steps_for_sanitizers
        tail -n 3 "$out/sanitizer-$tool.log"
      done
      ;;
    *) echo "no such step: $name"; failures=$((failures + 1)) ;;
  esac
done
rm -rf "$work"
echo "gpu checks: $failures failed"
exit $((failures > 0))
