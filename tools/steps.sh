# What gpu_checks.sh and cpu_checks.sh share; sourced by both. They set `out`, the folder of the logs.
failures=0

# step SECONDS NAME COMMAND...: runs it, keeps its output, says how it ended.
step() {
  local seconds=$1 name=$2 began=$SECONDS
  shift 2
  timeout --kill-after=10 "$seconds" "$@" > "$out/$name.log" 2>&1
  local code=$?
  echo "== $name: exit $code, $((SECONDS - began)) s"
  [ $code -eq 0 ] || { failures=$((failures + 1)); tail -n 12 "$out/$name.log" | cut -c1-300; }
  return $code
}

# quality_step SECONDS NAME COMMAND...: the same for `monolith quality`, whose code 5 says that
# everything was measured and that the format fails the gate. That is a result.
quality_step() {
  step "$@"
  [ $? -eq 5 ] && failures=$((failures - 1))
  tail -n 14 "$out/$2.log" | cut -c1-300
}
