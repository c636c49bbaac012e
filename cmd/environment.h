/* environment.h - the variables that this program and its libraries read, checked before anything
 * depends on them. */
#ifndef PL_ENVIRONMENT_H
#define PL_ENVIRONMENT_H

/* Prints a line for the first variable whose value makes no sense, naming it and what was expected,
 * and returns PL_EUSE. An empty value counts as not set, and is removed. */
int environment_check(void);

/* Whose certificates to believe: SSL_CERT_FILE, which OpenSSL, curl and Python know too. NULL: the
 * system's. */
const char *environment_ca_file(void);

#endif
