"""Language models as judges: prompts, what their replies say, and their fine-tuning."""
