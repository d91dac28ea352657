#!/bin/bash
# A study on the nodes of one SLURM job: sbatch docs/clusters/slurm.sh SPACE.yaml
# After a time limit or a crash, submit this script again: the study continues where it was.
#SBATCH --job-name=ablate
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=16
#SBATCH --gpus-per-node=4
#SBATCH --time=24:00:00
# A minute before the limit the driver is asked to stop, and saves.
#SBATCH --signal=B:TERM@60
set -euo pipefail

SPACE=${1:?usage: sbatch slurm.sh SPACE.yaml}
SHARED=${SHARED:-/shared/ablate} # on a file system that all nodes mount: the environment, the data, the checkpoints
# A database server. A SQLite file must be on a local disk of the first node, and not in a home folder on a network file system.
STORE=${ABLATE_STORE:?set it to a database URL, or to a SQLite file that is on no network file system}
source "$SHARED/.venv/bin/activate"

# A token of this job's own: the nodes share a network with other users.
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN
RAY_AUTH_TOKEN=$(head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n')

HEAD=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
HEAD_IP=$(srun --nodes=1 --ntasks=1 --nodelist="$HEAD" hostname --ip-address | awk '{print $1}')
PORT=$((20000 + SLURM_JOB_ID % 20000))

# The head runs beside the driver, on the node of this script; it trains too.
srun --nodes=1 --ntasks=1 --nodelist="$HEAD" --overlap \
    ray start --head --node-ip-address="$HEAD_IP" --port="$PORT" --include-dashboard=false \
    --num-cpus="$SLURM_CPUS_PER_TASK" --num-gpus="${SLURM_GPUS_ON_NODE:-0}" --block &
sleep 15
if [ "$SLURM_NNODES" -gt 1 ]; then
    srun --nodes=$((SLURM_NNODES - 1)) --ntasks=$((SLURM_NNODES - 1)) --exclude="$HEAD" --overlap --kill-on-bad-exit=0 \
        ray start --address="$HEAD_IP:$PORT" --num-cpus="$SLURM_CPUS_PER_TASK" --num-gpus="${SLURM_GPUS_ON_NODE:-0}" --block &
    sleep 15
fi

ablate run "$SPACE" --ray-address "$HEAD_IP:$PORT" --checkpoints "$SHARED/checkpoints" --store "$STORE" &
DRIVER=$!
trap 'kill -TERM "$DRIVER"' TERM INT
CODE=0
wait "$DRIVER" || CODE=$?
# A signal ends a wait while the driver still saves.
while kill -0 "$DRIVER" 2>/dev/null; do
    CODE=0
    wait "$DRIVER" || CODE=$?
done
exit "$CODE"
