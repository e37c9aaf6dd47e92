/* AUTO: which way to boot. */
#ifndef TSR_COMM_BOOTSTRAP_CHOOSE_H
#define TSR_COMM_BOOTSTRAP_CHOOSE_H

#include "comm/bootstrap/bootstrap.h"

/* Picks by the environment alone and says why; `why` is in static storage. Fails on a TESSERA_BOOT
 * that names nothing, and where a launcher has started several processes that could not find one
 * another: N copies that each take themselves for the only one would be worse. */
tsr_status tsr__bootstrap_choose(tsr__bootstrap_kind *kind, const char **why) TSR_NODISCARD;

#endif
