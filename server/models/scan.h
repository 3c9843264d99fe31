/* SPDX-License-Identifier: MIT */
/*
 * The models of a folder (--models): each folder in it that has a config.json is one, named after
 * it, also `org/name` two levels deep. Folders that are links are passed over; files may be links.
 *
 * Threads: the loader's.
 */
#ifndef HEARTH_SERVER_MODELS_SCAN_H
#define HEARTH_SERVER_MODELS_SCAN_H

struct srv_config;
struct srv_models;

/*
 * Makes the entries of the set fit what is in the folder: new models are added, those that have
 * vanished lose their names and drain, changed ones drain and are planned again. Others are not
 * touched. What cannot be served is listed as unavailable, with the reason.
 */
void srv_scan_models(struct srv_models *set, const struct srv_config *c);

#endif
