/* Which machine a process is on. */
#ifndef TSR_COMM_BOOT_NODE_H
#define TSR_COMM_BOOT_NODE_H

#include "comm/boot/boot.h"

/* A digest of what ranks have in common that can share memory; of TESSERA_NODE alone, where that is
 * set. */
void tsr__boot_node(uint8_t node[TSR__BOOT_NODE_SIZE]);

#endif
