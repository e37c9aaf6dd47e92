/* Which machine a process is on. */
#ifndef TSR_COMM_BOOTSTRAP_NODE_H
#define TSR_COMM_BOOTSTRAP_NODE_H

#include "comm/bootstrap/bootstrap.h"

/* A digest of what ranks have in common that can share memory; of TESSERA_NODE alone, where that is
 * set. */
void tsr__bootstrap_node(uint8_t node[TSR__BOOTSTRAP_NODE_SIZE]);

#endif
