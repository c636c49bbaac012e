/* demo_page.h - the demo's page while it trains: this same program as `potluck dash --folder`. */
#ifndef PL_CMD_DEMO_PAGE_H
#define PL_CMD_DEMO_PAGE_H

#include <stdint.h>
#include <sys/types.h>

/* Serves OUT's page on a free port of this machine and prints its address to stderr. 0: it could
 * not be started, which is no reason not to train. */
pid_t demo_page_start(const char *out, int64_t steps);
/* Ends it; the page as it then is stays in OUT/page. */
void demo_page_end(pid_t page, const char *out);

#endif
