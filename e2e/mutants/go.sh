#!/usr/bin/env bash
# Stands before the go command in the PATH of gremlins, for what gremlins has no option for. Its exit code 2
# says "not viable": gremlins counts such a mutant neither as killed nor as survived.
set -uo pipefail
shopt -s extglob

command=${1-}
shift
case " $* " in
*" -coverprofile "*) # which lines the tests reach, asked once for each package
  "$MUTANTS_GO" "$command" -trimpath "$@" || exit
  # A block of the profile begins behind its "case condition:", so that no condition of a case would be tried.
  while [ "$1" != -coverprofile ]; do shift; done
  sed -i -E 's/:([0-9]+)\.[0-9]+,/:\1.1,/' "$2"
  ;;
*" -failfast "*) # the tests of one mutant
  mutant=$(cat !(*_test).go | cksum | cut -d' ' -f1)
  (((mutant + MUTANTS_SEED) % MUTANTS_EVERY == 0)) || exit 2
  # Vet would kill mutants that no test kills. What the short tests leave alive, the long ones may kill.
  quick=(-trimpath -vet=off -ldflags='-s -w')
  for short in true false; do
    output=$("$MUTANTS_GO" "$command" "${quick[@]}" -short=$short "$@" 2>&1) && continue
    grep -qF '[build failed]' <<<"$output" && exit 2
    exit 1
  done
  ;;
*) exec "$MUTANTS_GO" "$command" "$@" ;;
esac
