/* What the tool uses of the library besides its public interface. The tool and its benchmarks link
 * the static library, so these functions need not be exported, and may change at any time. */
#ifndef TSR_TOOL_SEAM_H
#define TSR_TOOL_SEAM_H

#include "base/alloc.h"
#include "gpu/device/facts.h"
#include "gpu/matmul/tuning/tuning.h"
#include "gpu/memory/usage.h"
#include "gpu/self_test/findings.h"
#include "gpu/stream/profile.h"
#include "model/file.h"
#include "model/lora/files.h"
#include "parallel/checkpoint/files.h"
#include "sampler/order/names.h"
#include "tensor/check.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_read.h"
#include "tokenizer/tokenizer_write.h"

#endif
