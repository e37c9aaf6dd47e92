/* Includes every public header of tessera. */
#ifndef TESSERA_TESSERA_H
#define TESSERA_TESSERA_H

#include "tessera/attention.h"
#include "tessera/base.h"
#include "tessera/calibrate.h"
#include "tessera/checkpoint.h"
#include "tessera/comm.h"
#include "tessera/device.h"
#include "tessera/fsdp.h"
#include "tessera/group.h"
#include "tessera/kernel.h"
#include "tessera/kv_cache.h"
#include "tessera/layer.h"
#include "tessera/layout.h"
#include "tessera/loader.h"
#include "tessera/matmul.h"
#include "tessera/ops.h"
#include "tessera/optimizer.h"
#include "tessera/quant.h"
#include "tessera/rng.h"
#include "tessera/rope.h"
#include "tessera/sampler.h"
#include "tessera/seed.h"
#include "tessera/shard.h"
#include "tessera/stream.h"
#include "tessera/tensor.h"
#include "tessera/tokenizer.h"
#include "tessera/training.h"
#include "tessera/transformer.h"
#include "tessera/tuning.h"

#endif
