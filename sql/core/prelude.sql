\echo Use "CREATE EXTENSION mindful CASCADE" to load this file. \quit

