"""The learning table (`make learn`): trained agents, compared with published figures, over seeds.

    python -m benchmarks.learn                     train every missing row and seed, the cheapest first
    python -m benchmarks.learn ROW --seed 3        train one row and seed
    python -m benchmarks.learn list                rows, what is missing, and the minutes of a seed
    python -m benchmarks.learn table               write docs/results.md and its pictures from the committed results

`rows.py` holds the rows, `training.py` trains one, `results.py` reads and writes results/<row>/<seed>.json, `table.py`
and `pictures.py` show them. Everything may be interrupted (Ctrl-C) and started again: finished seeds are not repeated,
and an unfinished one continues from its last checkpoint in runs/learn/<row>/<seed>.

The seeds of the table are 0 to 4. Settings are chosen on seeds from 100 on, which leave no result:

    python -m benchmarks.learn acrobot-dqn --seed 100 --set learning_rate=1e-3 --trainer num_train_envs=4

`studies.py` compares variants of a training, which `cases.py` holds: `python -m benchmarks.learn.studies NAME`.
"""
