#!/usr/bin/env bash
# install.sh: fetches the clients of this folder that are missing: Debian packages with apt-get, which asks for root; rhea
# with npm and protonj2 with Maven into ../.ci/cache/interop. What is there already is left alone.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
installed=../.ci/cache/interop
mkdir -p "$installed"

again() { # COMMAND...: somebody else may hold its lock or fill its cache
  local try
  for try in 1 2 3 4; do ! "$@" || return 0; sleep "$((5 * try))"; done
  "$@"
}

packages=()
/usr/bin/python3 -c 'import proton' 2>/dev/null || packages+=(python3-qpid-proton libsasl2-modules)
command -v npm >/dev/null || packages+=(nodejs npm)
command -v java >/dev/null || packages+=(default-jdk-headless)
command -v mvn >/dev/null || packages+=(maven)
if ((${#packages[@]})); then
  again apt-get update -q
  again apt-get install -y -q "${packages[@]}"
fi

fetched() { cmp -s "$1" "$installed/$1.fetched"; } # FILE: what it lists is there

if ! fetched package-lock.json; then
  cp package.json package-lock.json "$installed"
  again npm ci --prefix "$installed" --no-audit --no-fund
  cp package-lock.json "$installed/package-lock.json.fetched"
fi
if ! fetched pom.xml; then
  rm -rf "$installed/jars"
  again mvn -q -B -f pom.xml dependency:copy-dependencies -DoutputDirectory="$PWD/$installed/jars"
  cp pom.xml "$installed/pom.xml.fetched"
fi
