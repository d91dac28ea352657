import runpy, sys, torch
torch.manual_seed = lambda number, seed=int(sys.argv.pop(1)), real=torch.manual_seed: real(number + seed)
runpy.run_path("train.py", run_name="__main__")
