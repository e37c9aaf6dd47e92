/* Reports to the launcher of this process. */
#ifndef TSR_COMM_BOOTSTRAP_LAUNCH_REPORT_H
#define TSR_COMM_BOOTSTRAP_LAUNCH_REPORT_H

/* Tells `tessera launch`, if it has started this process, that the process belongs to the job now.
 * docs/launching.md describes the protocol. Does nothing without the variable TESSERA_LAUNCH. */
void tsr__launch_report_member(void);

#endif
