#!/usr/bin/env bash
# Everything that needs a GPU, in one measuring run: probes, tests, gates, speeds, X-rays, quality,
# sanitizers.
#
#   bash tools/gpu_checks.sh BIN OUT [STEP...]
#
# BIN holds programs built elsewhere, for a machine without cargo: `monolith`, and `t`, the engine's
# CUDA test. OUT receives results/, dumps and logs. A STEP is one of
#
#   probes tests references sanitizer       steps for all models and formats together
#   MODEL-FORMAT                            reference, gate, speeds, token streams: tiny-bf16
#   quality-MODEL-FORMAT                    a format's quality against bf16: quality-tiny-fp8
#   xray-FORMAT                             X-rays of the stand-in
#   soak-MODEL-FORMAT                       100,000 tokens in one process: soak-standin-fp8
#   ablation-driver                         which launches of dependent kernels the driver survives
#   ablation-tests                          the tests of the rows that only the ablation measures
#   ablation-FORMAT                         their speeds and X-rays on the stand-in: ablation-fp8
#   speeds                                  all steps but those of `checks`
#   checks                                  quality, X-rays, soaks and sanitizers
#   ablation                                the four steps of the ablation
#
# [speeds checks]. On a machine with a time limit per command, call `speeds` and `checks` separately,
# with the same OUT and the same folder in WORK [WORK: a temporary folder]. Each command has a time
# limit; a failure does not stop the others, and the exit code says whether there was one.
set -u
bin=$1 out=$2
shift 2
models="tiny standin" formats="bf16 fp8 fp8-head-bf16"

expand() {
  local model format
  case $1 in
    speeds)
      echo probes tests references
      for model in $models; do for format in $formats; do echo "$model-$format"; done; done
      ;;
    checks)
      for model in $models; do
        for format in $formats; do [ "$format" = bf16 ] || echo "quality-$model-$format"; done
      done
      echo xray-bf16 xray-fp8 soak-standin-bf16 soak-standin-fp8 sanitizer
      ;;
    ablation) echo ablation-driver ablation-tests ablation-bf16 ablation-fp8 ;;
    *) echo "$1" ;;
  esac
}

steps=$(for name in ${*:-speeds checks}; do expand "$name"; done)
work=${WORK:-$(mktemp -d)}
export MONOLITH_CACHE=$work/cache MONOLITH_NEEDS_GPU=1 RUST_BACKTRACE=0 PYTHONUNBUFFERED=1
mkdir -p "$out" "$work"
. "$(dirname "$0")/steps.sh"

# The probes' measured read bandwidth, in GB/s: of the largest read by loads of 16 bytes with one
# block per SM.
bandwidth() {
  python3 -c '
import json, sys
rows = json.load(open(sys.argv[1]))["bandwidth"]["measured"]
rows = [row for row in rows if row["way"] == "loads of 16 bytes, 1 block an SM"]
print(round(max(rows, key=lambda row: row["bytes"])["gb_per_s_median"]))
' "$out/probes.json"
}

path_of() {
  case $1 in
    tiny) echo data/tiny ;;
    standin) echo "$work/standin" ;;
  esac
}

# made MODEL: makes the model if it is not shipped.
made() {
  [ "$1" != standin ] || [ -d "$work/standin" ] \
    || step 60 standin-synth "$bin/monolith" synth --deltas data/standin -o "$work/standin"
}

# reference MODEL FORMAT: ids, and transformers' reference, once. For formats other than bf16 the
# reference runs the values of the codes and scales.
reference() {
  local name=$1-$2 model values
  model=$(path_of "$1") values=$(path_of "$1")
  [ -f "$work/$name-reference/reference.json" ] && return
  step 30 "$name-ids" "$bin/monolith" ids -m "$model" -o "$work/$name.json" || return
  if [ "$2" != bf16 ]; then
    values=$work/$name-values
    rm -rf "$values"
    step 90 "$name-unpack" "$bin/monolith" unpack -m "$model" --format "$2" -o "$values" || return
  fi
  step 240 "$name-reference" python3 tools/reference.py --model "$values" \
    --ids "$work/$name.json" --out "$work/$name-reference"
}

# control MODEL: transformers' tokens in bf16 and in f32, once.
control() {
  [ -f "$out/control-$1.json" ] && return
  step 30 "control-$1-ids" "$bin/monolith" ids -m "$(path_of "$1")" \
    --prompts data/prompts/quality.jsonl -o "$work/control-$1-ids.json" || return
  step 240 "control-$1" python3 tools/control.py --model "$(path_of "$1")" \
    --ids "$work/control-$1-ids.json" --out "$out/control-$1.json"
}

# measured MODEL FORMAT: reference, gate, bench.
measured() {
  local name=$1-$2 model gb_s
  model=$(path_of "$1")
  made "$1" && reference "$@" || return
  step 150 "$name-gate" "$bin/monolith" gate -m "$model" --format "$2" --engine cuda \
    --reference "$work/$name-reference" --results "$out/results" \
    || { tail -n 20 "$out/$name-gate.log"; return; }
  tail -n 4 "$out/$name-gate.log" | cut -c1-300
  if ! gb_s=$(bandwidth); then
    echo "== $name-bench: not run, $out/probes.json has no bandwidth"
    failures=$((failures + 1))
    return
  fi
  step 90 "$name-bench" "$bin/monolith" bench -m "$model" --format "$2" --engine cuda \
    --require-gate --ids "$work/$name.json" --results "$out/results" --bandwidth-gb-s "$gb_s" \
    --bandwidth-source "monolith doctor --probe in the same run, 1200 MB by loads of 16 bytes" -o md \
    && cat "$out/$name-bench.log"
}

# xray FORMAT: steps early and late in a text, the cost of recording, and traces for the page.
xray() {
  made standin || return
  step 60 "xray-$1" "$bin/monolith" xray record -m "$(path_of standin)" --format "$1" --engine cuda \
    --at 16,512,2048 -r 9 -o "$out/dumps" || return
  grep -E 'longer|^token .* us|true to' "$out/xray-$1.log"
  local at
  for at in 16 2048; do
    step 30 "export-$1-$at" "$bin/monolith" xray export "$out/dumps/$1-flag-$at.xray" --to page \
      -o "$out/xray-$1-flag-$at.json.gz"
  done
}

# soak MODEL FORMAT: the same texts again and again, and their record. The time limit lets the record be
# written before the step's own ends.
soak() {
  made "$1" || return
  step 240 "soak-$1-$2" "$bin/monolith" soak -m "$(path_of "$1")" --format "$2" --engine cuda \
    -n 100000 --limit 200 -o "$out/soak-$1-$2.json"
  tail -n 7 "$out/soak-$1-$2.log"
}

# ablation FORMAT: speed, hash of the tokens and X-ray of every row, the headline's first. No release embeds
# the others' kernels: they are compiled before anything is timed, all at once. Only the headline has a gate (the
# step standin-FORMAT); tools/ablation_table.py refuses rows whose tokens differ from its tokens.
ablation() {
  local model row name at_once=() cooperative="flag flag-apart counter barrier"
  local by_phase="graph graph-apart dependent dependent-apart dependent-graph dependent-graph-apart"
  made standin || return
  model=$(path_of standin)
  for row in $cooperative $by_phase; do
    name=$1-$row
    local common=(-m "$model" --format "$1" --engine cuda --variant "$name")
    local short=("$bin/monolith" bench "${common[@]}" --no-prompts --no-warmup -n 1 -d 1 -r 1
      --results "$work/no-results")
    # The first one makes the pack, too.
    [ "$row" != flag ] || step 60 "ablation-$name-first" "${short[@]}" || return
    case " $by_phase " in
      *" $row "*) timeout 60 "${short[@]}" > "$out/ablation-$name-compile.log" 2>&1 & ;;
      *) timeout 60 "$bin/monolith" xray record "${common[@]}" --at 1 -r 1 -o "$work/compiled" \
        > "$out/ablation-$name-compile.log" 2>&1 & ;;
    esac
    at_once+=($!)
  done
  wait "${at_once[@]}"
  for row in $cooperative $by_phase; do
    step 20 "ablation-$1-$row-bench" "$bin/monolith" bench -m "$model" --format "$1" --engine cuda \
      --variant "$1-$row" --no-prompts -n 256 -d 16 -r 5 --results "$work/no-results" -o jsonl
  done
  for row in $cooperative; do
    step 20 "ablation-$1-$row-xray" "$bin/monolith" xray record -m "$model" --format "$1" \
      --engine cuda --variant "$1-$row" --at 128 -r 3 -o "$out/dumps"
  done
  step 10 "ablation-$1-table" python3 tools/ablation_table.py "$out" "$1"
  cat "$out/ablation-$1-table.log"
}

# quality MODEL FORMAT: first the control, then the format against bf16.
quality() {
  local model limit=()
  model=$(path_of "$1")
  made "$1" && control "$1" || return
  [ "$1" = tiny ] || limit=(--limit-tokens 12288)
  quality_step 180 "quality-$1-$2" "$bin/monolith" quality -m "$model" --candidate-format "$2" \
    --engine cuda --control "$out/control-$1.json" --results "$out/results" \
    --text data/tiny/heldout.txt "${limit[@]}"
}

# All runs of transformers, in parallel, since nothing here is timed. The step that needs a failed one
# tries it again, and counts the failure.
references() {
  local model format
  made standin || return
  for model in $models; do
    for format in $formats; do reference "$model" "$format" & done
    control "$model" &
  done
  wait
}

# memcheck of every build; initcheck, which checks only global memory; racecheck, which checks only
# shared memory, and whose hazards a script judges. None of them finds that a step reads shared memory
# that nobody wrote: the test
# `shared_memory_that_nobody_wrote_changes_nothing` does.
sanitizer() {
  step 150 sanitizer-memcheck compute-sanitizer --tool memcheck --error-exitcode 9 \
    "$bin/t" --test-threads=1 a_few_steps
  step 120 sanitizer-initcheck compute-sanitizer --tool initcheck --error-exitcode 9 \
    "$bin/t" --test-threads=1 a_few_steps_for_sanitizers
  timeout --kill-after=10 120 env MONOLITH_CACHE="$work/racecheck" \
    compute-sanitizer --tool racecheck "$bin/t" --test-threads=1 a_few_steps_for_sanitizers \
    > "$out/sanitizer-racecheck.log" 2>&1
  step 30 sanitizer-verdict python3 tools/racecheck_verdict.py "$out/sanitizer-racecheck.log" \
    "$(ls -t "$work"/racecheck/kernels/*.cubin | head -n 1)"
  tail -n 4 "$out/sanitizer-verdict.log"
}

for name in $steps; do
  case $name in
    probes)
      step 60 probes "$bin/monolith" doctor --probe --out "$out/probes.json"
      grep -E 'bandwidth|hand-off|timer' "$out/probes.log" | cut -c1-140
      ;;
    tests)
      step 240 tests "$bin/t" --test-threads=1 --nocapture
      grep -E 'injected|ignored|test result' "$out/tests.log" | cut -c1-200
      ;;
    references) references ;;
    ablation-driver)
      step 120 ablation-driver python3 tools/dependent_graphs.py
      cat "$out/ablation-driver.log"
      ;;
    ablation-tests)
      for test in every_row_gives_the_bits_of_the_headline every_row_keeps_the_promises \
        recording_rows_give_the_same_tokens a_fault_is_named_in_every_row \
        dependent_graphs_give_the_bits_of_the_headline; do
        step 100 "ablation-$test" "$bin/t" --test-threads=1 --nocapture --exact "$test"
        grep -E '^test |injected|left out|test result' "$out/ablation-$test.log" | cut -c1-200
      done
      ;;
    ablation-*) ablation "${name#ablation-}" ;;
    sanitizer) sanitizer ;;
    xray-*) xray "${name#xray-}" ;;
    soak-*-*) pair=${name#soak-} && soak "${pair%%-*}" "${pair#*-}" ;;
    quality-*-*) pair=${name#quality-} && quality "${pair%%-*}" "${pair#*-}" ;;
    tiny-* | standin-*) measured "${name%%-*}" "${name#*-}" ;;
    *) echo "no such step: $name" && failures=$((failures + 1)) ;;
  esac
done
[ -n "${WORK:-}" ] || rm -rf "$work"
echo "gpu checks: $failures failed"
exit $((failures > 0))
