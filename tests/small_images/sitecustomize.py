"""Python reads this first where its folder is in PYTHONPATH: trainers then train on images of 64 x 64 pixels."""

from helpers.trainers.contract import models

models.IMAGE_SIZE = 64
