"""A loop that starts a process for each trial, as many at once as there are slots."""

import subprocess
import sys
import time

if __name__ == "__main__":
    trials, slots = int(sys.argv[1]), int(sys.argv[2])
    processes: list[subprocess.Popen[bytes]] = []
    for number in range(trials):
        while sum(process.poll() is None for process in processes) == slots:
            time.sleep(0.01)
        command = f"from trial import train; train({number})"
        processes.append(subprocess.Popen([sys.executable, "-c", command]))
    codes = [process.wait() for process in processes]
    sys.exit(any(codes))
