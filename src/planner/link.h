/* The time of a message over a link, from measurements. All times are in seconds, and all sizes in
 * bytes. */
#ifndef TSR_PLANNER_LINK_H
#define TSR_PLANNER_LINK_H

/* The measured times of messages of several sizes, in ascending order of sizes. Between two sizes,
 * the time is interpolated. Above the largest size, it grows with the bandwidth between the last
 * two. A latency and a bandwidth are not enough, because UCX changes its protocol at some sizes. */
#define TSR__LINK_SIZES 16
typedef struct tsr__link {
    int count; /* 0: there is no link; otherwise at least 2 */
    double bytes[TSR__LINK_SIZES], seconds[TSR__LINK_SIZES];
} tsr__link;

/* Returns a link whose messages take `latency` plus their size divided by `bandwidth`, which must
 * be above 0. */
tsr__link tsr__link_of(double latency, double bandwidth);
double tsr__link_seconds(const tsr__link *link, double bytes);
/* Returns the bytes per second of large messages. */
double tsr__link_bandwidth(const tsr__link *link);

#endif
