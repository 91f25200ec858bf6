"""What the authors' code computes, in a process that has TensorFlow and not this package.

`authors.py` starts it. A request is one line of JSON on standard input, its answer one on standard output.
"""

import json
import os
import sys
import time
from functools import partial
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import tensorflow

tf = tensorflow.compat.v1
LAYERS = {"num_exterior_layers": 2, "num_outer_layers": 2, "num_inner_layers": 2}
SCALES = {"emb_init_scale": 1.0, "res_init_scale": 1.0, "logits_init_scale": 1.0}
RGB = {"emb_dim": 32, "num_heads": 4, **LAYERS, **SCALES}
GREY = {"num_embs": 16, "emb_dim": 16, "num_heads": 2, "hdim_factor": 2, "num_outer_layers": 2, "num_inner_layers": 2}
TRAINING = {"max_lr": 0.01, "warmup": 5, "grad_clip_norm": 1.0, "ema": 0.9, "adam_beta1": 0.9, "adam_beta2": 0.999}


class HParams(SimpleNamespace):
    def values(self):
        return vars(self)


def authors(checkout, *names):
    """The modules of a checkout, which expect TensorFlow 1.15, with what they need of its `contrib`."""
    tf.disable_v2_behavior()
    tf.logging.set_verbosity(tf.logging.ERROR)
    tpu = SimpleNamespace(CrossShardOptimizer=lambda optimizer: optimizer)
    tf.contrib = SimpleNamespace(tpu=tpu, training=SimpleNamespace(HParams=HParams))
    tf.compat.v1 = sys.modules["tensorflow"] = tf
    sys.path.insert(0, str(checkout))
    return [import_module(f"axial.{name}") for name in names]


def open_session():
    return tf.Session(config=tf.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1))


def initialise(session, random):
    """Makes random weights and moves biases and gains, because zeros and ones hide mistakes."""
    session.run(tf.global_variables_initializer())
    for variable in sorted(tf.trainable_variables(), key=lambda variable: variable.op.name):
        if variable.op.name.endswith(("/b", "/g")):
            moves = 0.1 * random.randn(*variable.shape.as_list())
            variable.load(session.run(variable) + moves.astype(np.float32), session)


def save(session, folder):
    Path(folder).mkdir(parents=True, exist_ok=True)
    tf.train.Saver().save(session, f"{folder}/model.ckpt", write_meta_graph=False, write_state=False)


def bits(logits, x):
    return tf.nn.sparse_softmax_cross_entropy_with_logits(logits=logits, labels=x) / np.log(2.0)


def bits_of_each(logits, x):
    return tf.reduce_mean(tf.reshape(bits(logits, x), [int(x.shape[0]), -1]), axis=1)


def draws(utils, seed, shape, values, width):
    """Images, noise and conditioning of a case, and the generator that goes on."""
    random = np.random.RandomState(seed)
    x = random.randint(0, values, shape).astype(np.int32)
    noise = utils.np_gumbel(random, (*shape, values), 1.0).astype(np.float32)
    return x, noise, random.randn(*shape[:3], width).astype(np.float32), random


def official_a(checkout, folder):
    transformers, utils = authors(checkout, "transformers", "utils")
    x, noise, cond, random = draws(utils, 11, (3, 8, 8, 3), 256, 32)
    slices = random.randint(0, 3, 3).astype(np.int32)
    given = {"x": x, "noise": noise, "cond": cond, "slice_inds": slices}
    tf.set_random_seed(11)  # with the number of operations so far, the seed of every weight
    shape = {"img_height": 8, "img_width": 8, "img_channels": 3, "num_embs": 256}
    model = transformers.Transformer3d(name="ar_decoder", hdim_factor=2, **shape, **RGB)
    x, noise, cond, slices = map(tf.constant, given.values())
    logits = model.compute_slice_logits(x, slices, cond=None, dropout=0.0)
    loss = tf.reduce_mean(bits(logits, model._extract_cur_chn_slice(x, slices)))
    contexts = [model._compute_conditioning(x, tf.fill([3], c), cond=None, dropout=0.0) for c in range(3)]
    computed = {"slice_logits": logits, "slice_loss_bits": loss, "conditioning": tf.stack(contexts)}
    for suffix, context in ("", None), ("_cond", cond):
        computed[f"logits{suffix}"] = model.compute_logits(x, cond=context, dropout=0.0)
        computed[f"sample_fast{suffix}"] = model.sample_fast(noise, cond=context, dropout=0.0)
        computed[f"sample_slow{suffix}"] = model.sample_slow(noise, cond=context, dropout=0.0)
    computed["bits_per_dim"] = bits_of_each(computed["logits"], x)
    variables = tf.trainable_variables()
    for variable, gradient in zip(variables, tf.gradients(loss, variables)):
        computed[f"grad/{variable.op.name}"] = tf.convert_to_tensor(gradient)
    finish(folder, random, given, computed)


def official_c(checkout, folder):
    transformers, utils = authors(checkout, "transformers", "utils")
    *arrays, random = draws(utils, 13, (3, 12, 12), 16, 16)
    given = {name: array[:2] for name, array in zip(("x", "noise", "cond"), arrays)}
    tf.set_random_seed(13)
    model = transformers.Transformer2d(name="model", img_height=12, img_width=12, **GREY, **SCALES)
    x, noise, cond = map(tf.constant, given.values())
    h, positions, computed = tf.gather(model.embs, x), model.get_pos_embs()[None], {}
    for suffix, context in ("", None), ("_cond", cond):
        upper = model._upper_context(h, positions, cond=context, dropout=0.0)
        logits = model.compute_logits(x, cond=context, dropout=0.0)
        computed[f"upper_context{suffix}"], computed[f"logits{suffix}"] = upper, logits
        computed[f"row_hidden{suffix}"] = model._row_autoregressive(h, upper, positions, cond=context, dropout=0.0)
        computed[f"bits_per_dim{suffix}"] = bits_of_each(logits, x)
        computed[f"sample_fast{suffix}"] = model.sample_fast(noise, cond=context, dropout=0.0)
    finish(folder, random, given, computed)


def finish(folder, random, given, computed):
    with open_session() as session:
        initialise(session, random)
        save(session, folder)
        np.savez_compressed(f"{folder}/case.npz", **given, **session.run(computed))


def official_e(checkout, folder):
    models, utils, worker_util = authors(checkout, "models", "utils", "worker_util")
    tpu = import_module("tensorflow.python.tpu.tpu_function")
    optim, decoder = HParams(**TRAINING), HParams(hdim_factor=1, **RGB)
    config = HParams(img_size=8, dropout=0.0, optim=optim, ardec=decoder)
    tf.set_random_seed(15)
    x = tf.placeholder(tf.int32, [4, 8, 8, 3])
    noise = tf.placeholder(tf.float32, [4, 8, 8, 3, 256])
    model = models.SlicedChannelModel(config)
    with tpu.tpu_shard_context(1):
        metrics, step = model.train_fn(x)
    (slices,) = (op.outputs[0] for op in tf.get_default_graph().get_operations() if op.type == "RandomUniformInt")
    (adam,) = (op for op in step.control_inputs if op is not model._ema_op)
    averaged = worker_util._make_ema_model(model, lambda: models.SlicedChannelModel(config))
    computed = {"sample_slow_ema": averaged.ar_decoder.sample_slow(noise, cond=None, dropout=0.0)}
    computed["sample_fast_ema_t0.99"] = averaged.ar_decoder.sample_fast(0.99 * noise, cond=None, dropout=0.0)
    for suffix, each in ("", model), ("_ema", averaged):
        computed[f"logits{suffix}"] = each.ar_decoder.compute_logits(x, cond=None, dropout=0.0)
        computed[f"bits_per_dim{suffix}"] = each.eval_fn(x)["losses"]
        computed[f"sample_fast{suffix}"] = each.ar_decoder.sample_fast(noise, cond=None, dropout=0.0)
    random, arrays, recorded = np.random.RandomState(15), {}, []
    with open_session() as session:
        initialise(session, random)
        for variable in model.trainable_variables:
            model.ema.average(variable).load(session.run(variable), session)
        save(session, f"{folder}/init")
        rms = metrics.pop("param_rms")
        for i in range(6):
            # Their graph leaves open whether Adam or the average comes first: here it is the average.
            _, before = session.run([model._ema_op, rms])
            batch = random.randint(0, 256, (4, 8, 8, 3)).astype(np.int32)
            _, channels, line = session.run([adam, slices, metrics], {x: batch})
            arrays |= {f"train/x_{i}": batch, f"train/slice_inds_{i}": channels}
            recorded.append(line | {"param_rms": before})
        for name in ("loss", "grad_norm", "lr", "param_rms"):
            arrays[f"train/{name}"] = np.array([line[name] for line in recorded], np.float32)
        save(session, folder)
        arrays["x"] = random.randint(0, 256, (4, 8, 8, 3)).astype(np.int32)
        arrays["noise"] = utils.np_gumbel(random, (4, 8, 8, 3, 256), 1.0).astype(np.float32)
        arrays |= session.run(computed, {x: arrays["x"], noise: arrays["noise"]})
    np.savez_compressed(f"{folder}/case.npz", **arrays)  # type: ignore[arg-type]


def official_published(checkout, folder):
    Path(folder).mkdir(parents=True, exist_ok=True)
    for name in "imagenet32", "imagenet64":
        models, config = authors(checkout, "models", f"config_{name}")
        with tf.Graph().as_default():
            models.SlicedChannelModel(config.get_config().model_config)
            lines = [f"{v.op.name} {v.shape.as_list()} {v.dtype.base_dtype.name}\n" for v in tf.global_variables()]
        Path(f"{folder}/{name}_variables.txt").write_text("".join(sorted(lines)))


CASES = {case.__name__: case for case in (official_a, official_c, official_e, official_published)}
RUNS = {}


def case(checkout, name, folder):
    CASES[name](checkout, folder)
    return {}


def prepare(checkout, folder, model, batches, compiled):
    """Takes the weights in the folder, or leaves random ones there, and what is drawn or scored from `inputs.npz`."""
    (transformers,) = authors(checkout, "transformers")
    tf.enable_resource_variables()
    tf.set_random_seed(0)
    decoder = transformers.Transformer3d(name="ar_decoder", **model, **SCALES)
    inputs, session = np.load(f"{folder}/inputs.npz"), open_session()
    if Path(f"{folder}/model.ckpt.index").exists():
        tf.train.Saver().restore(session, f"{folder}/model.ckpt")
    else:
        initialise(session, np.random.RandomState(0))
        save(session, folder)

    def likelihood(x):
        return bits_of_each(decoder.compute_logits(x, cond=None, dropout=0.0), x)

    def sample(noise):
        return decoder.sample_fast(noise, cond=None, dropout=0.0)

    for work, name in (likelihood, "x"), (sample, "noise"):
        for batch in batches:
            given = inputs[name][:batch]
            symbol = tf.placeholder(given.dtype, given.shape)
            fetched = tf.function(work, jit_compile=True)(symbol) if compiled else work(symbol)
            RUNS[work.__name__, batch] = partial(session.run, fetched, {symbol: given})
    return {"tensorflow": tensorflow.__version__}


def run(work, batch):
    start = time.process_time()
    result = RUNS[work, batch]()
    return {"seconds": time.process_time() - start, "result": result.tolist()}


def main():
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a library prints is no answer
    actions = {action.__name__: action for action in (case, prepare, run)}
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps(actions[request.pop("do")](**request)), file=answers, flush=True)


if __name__ == "__main__":
    main()
