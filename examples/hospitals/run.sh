#!/usr/bin/env bash
# Three hospitals, from tables to predictions: bash examples/hospitals/run.sh [FOLDER], by default ./hospitals.
# ROUNDS=5 is a quick look. DEPLOY=1 also runs the federation with one process per hospital (needs fedpub[deploy]).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "${1:-hospitals}"
cd "${1:-hospitals}"
rounds=${ROUNDS:-100}
columns=(--id id --label diagnosis)

python "$here/make_tables.py" tables

# Hospital a decides how columns become features, and gives the others its encoding: a file without any patients.
fedpub data import --nodes tables/hospital-a.csv --edges tables/hospital-a-contacts.csv "${columns[@]}" \
  --out hospital-a.graph --encoding-out encoding.json --force
for name in hospital-b hospital-c; do
  fedpub data import --nodes tables/$name.csv --edges tables/$name-contacts.csv "${columns[@]}" \
    --out $name.graph --like encoding.json --force
done

# In a simulation all three are on one machine. Several node files are several clients, named after their files.
fedpub data import --nodes tables/hospital-{a,b,c}.csv --edges tables/hospital-{a,b,c}-contacts.csv "${columns[@]}" \
  --out hospitals.graph --like encoding.json --force
fedpub data stats --dataset hospitals.graph
fedpub compare --dataset hospitals.graph --methods fedpub local fedavg fedper --hidden 32 --rounds "$rounds"

# The final run, and what the mountain clinic's own model predicts for its patients; client 2 is hospital c.
rm -rf runs/hospitals
fedpub run --dataset hospitals.graph --method fedpub --hidden 32 --rounds "$rounds" --out runs/hospitals
fedpub predict --model runs/hospitals --client 2 --graph hospital-c.graph --out predictions.csv
echo "the patients of hospital c who had no diagnosis:"
tail -n 20 predictions.csv | head -n 5

if [[ ${DEPLOY:-} ]]; then
  rm -rf runs/deployed
  fedpub deploy local --dataset hospitals.graph --method fedpub --hidden 32 --rounds 3 --out runs/deployed
fi
