from diffusion_lab.loggers.base import log_image, log_values
from diffusion_lab.loggers.jsonl import JsonlLogger
