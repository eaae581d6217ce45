document.body.dataset.ready = "true"; // there are no answers to show
