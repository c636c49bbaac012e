/* environment.h - the variables that this program and its libraries read, checked before anything
 * depends on them. */
#ifndef PL_ENVIRONMENT_H
#define PL_ENVIRONMENT_H

struct http_credential;

/* Prints a line for the first variable with an invalid value, with its name and the expectation,
 * and returns PL_EUSE. An empty value counts as not set, and is removed. */
int environment_check(void);

/* The trusted certificates: SSL_CERT_FILE, which OpenSSL, curl and Python read too. NULL: the
 * system's. */
const char *environment_ca_file(void);

/* The hub: HF_ENDPOINT, or https://huggingface.co. */
const char *environment_hub(void);

/* HTTP_CREDENTIALS_MAX of them: POTLUCK_TOKEN, which belongs to the origin of the URL `named` on
 * the command line, and HF_TOKEN, which belongs to the origin of `hub`. Either may be missing. */
void environment_credentials(struct http_credential *out, const char *named, const char *hub);

#endif
