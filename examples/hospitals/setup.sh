#!/bin/sh
# A federation of the three hospitals, ready to start: sh examples/hospitals/setup.sh FOLDER
# In one federation these are steps of four people: FOLDER/coordinator and FOLDER/hospital-* are on machines of their own.
# Only ca.pem and encoding.json go to the hospitals, only .pub files come back. A second call changes nothing.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
cd "$1"
if [ -e coordinator/ready ]; then
  echo "the federation is set up already"
  exit 0
fi
# What an interrupted call has left.
rm -rf coordinator/fed hospital-*/site hospital-*/*.graph
tables=$(mktemp -d)
trap 'rm -rf "$tables"' EXIT
python "$here/make_tables.py" "$tables"

# At hospital a, which decides how columns become features; its encoding is a file without any patients.
fedpub data import --nodes "$tables/hospital-a.csv" --edges "$tables/hospital-a-contacts.csv" --id id \
  --label diagnosis --out hospital-a/hospital-a.graph --encoding-out "$tables/encoding.json" --force
# At the others.
for name in hospital-b hospital-c; do
  fedpub data import --nodes "$tables/$name.csv" --edges "$tables/$name-contacts.csv" --id id --label diagnosis \
    --out "$name/$name.graph" --like "$tables/encoding.json" --force
done

# At the coordinator. Its gate needs about four times --max-message (MiB) of memory, and the container has 2 GiB in all.
fedpub coordinator init --folder coordinator/fed --host "${COORDINATOR:-coordinator}" --port "${PORT:-9443}" \
  --method fedpub --hidden 32 --rounds "${ROUNDS:-20}" --max-message 64

for name in hospital-a hospital-b hospital-c; do
  fedpub site init --id "$name" --coordinator "${COORDINATOR:-coordinator}:${PORT:-9443}" \
    --graph "$name/$name.graph" --ca coordinator/fed/ca.pem --folder "$name/site"
  fedpub coordinator admit "$name/site/$name.pub" --folder coordinator/fed
done
touch coordinator/ready
